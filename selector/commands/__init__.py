"""A verb's `<verb>_flags` says what it is given, `<verb>` does it; both import what they need when they are called."""
