"""What flows through the library: plain, frozen values. No I/O, no threads, no OpenTelemetry."""
