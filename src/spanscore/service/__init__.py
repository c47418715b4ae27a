"""serve, worker, the proxy and the Kafka source; no command line."""
