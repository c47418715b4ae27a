"""Plain values, codecs, the loop, threads, files, log and context; no OpenTelemetry provider, no judge and no setting."""
