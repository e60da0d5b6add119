"""What a client sends stays data, and nobody stops the others: attacks for real, through every door."""
