// Programs on the Vercel AI SDK: a chain, a tool, a thread of three turns, a stream, an object.
//
//   node programs.mjs MAJOR URL    →  {"program": …, "version": …, "request": <OTLP-JSON of one trace>} on each line
//
// The texts come from said.json, which record.py writes beside this file from tests/traces/said.py.

import { readFileSync } from 'node:fs';
import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { InMemorySpanExporter, NodeTracerProvider, SimpleSpanProcessor } from '@opentelemetry/sdk-trace-node';

const [major, url] = process.argv.slice(2);
const { MODEL, SYSTEM, CAPITAL, SUM, TURNS } = JSON.parse(readFileSync('said.json', 'utf8'));
const { version } = JSON.parse(readFileSync(`node_modules/ai-${major}/package.json`, 'utf8'));
const ai = await import(`ai-${major}`);
const { createOpenAI } = await import(`@ai-sdk/openai-${major}`);
const model = createOpenAI({ baseURL: url, apiKey: 'none', compatibility: 'strict' }).chat(MODEL);

let counted = 0;
const id = width => (++counted).toString(16).padStart(width, '0');
const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({
  idGenerator: { generateTraceId: () => id(32), generateSpanId: () => id(16) },
  resource: resourceFromAttributes({ 'service.name': 'vercel_ai' }),
  spanProcessors: [new SimpleSpanProcessor(exporter)],
});
provider.register();

const traced = { isEnabled: true, functionId: 'recorded', metadata: { sessionId: 'session-1', userId: 'user-1' } };
const hidden = { ...traced, recordInputs: false, recordOutputs: false };
const numbers = ai.jsonSchema({ type: 'object', properties: { a: { type: 'integer' }, b: { type: 'integer' } } });
const add = ai.tool({
  description: 'Add two numbers.',
  parameters: numbers, // before 5
  inputSchema: numbers,
  execute: async ({ a, b }) => a + b,
});

const asked = (options, telemetry = traced) =>
  ai.generateText({ model, system: SYSTEM, experimental_telemetry: telemetry, ...options });

async function thread() {
  const messages = [];
  for (const content of TURNS) {
    messages.push({ role: 'user', content });
    const { text } = await asked({ messages, system: undefined });
    messages.push({ role: 'assistant', content: text });
  }
}

const programs = {
  chain: () => asked({ prompt: CAPITAL }),
  agent: () => asked({ prompt: SUM, tools: { add }, maxSteps: 3, stopWhen: ai.stepCountIs?.(3) }),
  thread,
  stream: () =>
    ai.streamText({ model, system: SYSTEM, prompt: CAPITAL, experimental_telemetry: traced }).consumeStream(),
  'chain-without-content': () => asked({ prompt: CAPITAL }, hidden),
};

for (const [program, run] of Object.entries(programs)) {
  await run();
  await provider.forceFlush();
  const byTrace = grouped(exporter.getFinishedSpans());
  for (const spans of byTrace.values()) {
    const request = JSON.parse(new TextDecoder().decode(JsonTraceSerializer.serializeRequest(spans)));
    console.log(JSON.stringify({ program, version, request }));
  }
  exporter.reset();
}

function traceId(span) {
  return span.spanContext().traceId;
}

function grouped(spans) {
  const traces = new Map();
  for (const span of spans) traces.set(traceId(span), [...(traces.get(traceId(span)) ?? []), span]);
  return traces;
}
