"""Spool, outbox and carriers of remote scoring: units that outlive or leave the process; no Kafka consumer."""
