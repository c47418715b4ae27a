"""Spool, outbox and carriers of remote scoring: what outlives or leaves the process; no Kafka consumer."""
