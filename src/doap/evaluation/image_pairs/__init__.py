"""Image matching on pairs with known geometry: Oxford, own pairs, warped photos."""
