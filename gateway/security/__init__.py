"""Who may come in, who may do what, what others see, and what statements may not do: below every door."""
