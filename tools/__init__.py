"""Programs for maintainers of the checkout; the wheel does not contain them."""
