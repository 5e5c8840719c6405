"""Starts an SGLang server with the settings that a plan wants."""
