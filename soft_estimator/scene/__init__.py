"""Scenes: their files, the body and model that are built from them, and what is estimated of them."""
