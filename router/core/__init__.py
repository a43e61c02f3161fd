"""Decisions without I/O: no clock, no chance, no logging, no async. Time is an argument, answers are values."""
