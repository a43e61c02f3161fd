"""Policies of other routers, written anew from their public documentation."""
