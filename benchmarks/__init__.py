"""Claims about the gateway, each measured beside its anchor: the paper's figures, or a peer in the same run."""
