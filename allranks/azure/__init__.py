"""Everything that needs the Azure ML SDK; nothing here imports it before it is called."""
