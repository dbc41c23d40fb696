"""Who gets which entry: one core per kind of subscription, all on one plan of reads."""
