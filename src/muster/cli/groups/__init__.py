"""`muster groups`: what kafka-consumer-groups does, against a running cluster."""
