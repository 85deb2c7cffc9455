"""What a run reads: an offsets topic and where logs of data end, of directories of brokers or of a live cluster."""
