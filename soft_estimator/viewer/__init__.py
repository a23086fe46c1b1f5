"""The live viewer: a page on localhost that shows points, twin, plane and parameters as they come."""
