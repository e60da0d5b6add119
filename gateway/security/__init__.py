"""Who may come in, who may do what, and what others see: one place below every door."""
