"""The selector: plans and statistics in, an estimate and a decision out. Pure: no I/O, no clock, no drivers."""
