"""The frontier: accuracy against uploaded bytes, beside every rival."""
