"""The op families of the golden values; generate.py writes them."""
