// An application on the AI SDK of Node, as its makers trace it: asks a question so many times, and its spans leave by OTLP.
//
//   node ask.mjs MODEL_URL OTLP_TRACES_URL TIMES QUESTION

import { createOpenAI } from '@ai-sdk/openai';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, NodeTracerProvider } from '@opentelemetry/sdk-trace-node';
import { generateText } from 'ai';

const [modelUrl, tracesUrl, times, prompt] = process.argv.slice(2);
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'javascript' }),
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: tracesUrl }))],
});
provider.register();

const model = createOpenAI({ baseURL: modelUrl, apiKey: 'none' }).chat('offline-model');
for (let asked = 0; asked < Number(times); asked++) {
  await generateText({ model, prompt, experimental_telemetry: { isEnabled: true, functionId: 'guide' } });
}
await provider.shutdown();
