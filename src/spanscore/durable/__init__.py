"""Units that outlive or leave the process: the spool, the outbox, and the carriers of remote scoring."""
