"""Commands that use descriptors: match, describe, and files for other tools."""
