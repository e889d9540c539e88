"""Commands that evaluate descriptors: `doap eval`, `show`, `report`."""
