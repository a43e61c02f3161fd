"""Readers of recorded traffic: lines of a file in, requests with sizes and block identities out."""
