"""Tables: where they may lie, how they come into the catalog, and the folders that the gateway makes for them."""
