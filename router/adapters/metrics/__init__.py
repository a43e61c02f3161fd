"""Counts requests and shows the fleet to Prometheus.

Counting is adding to plain numbers, since it happens once per request in the data plane; Prometheus' objects are made
when /metrics is read.
"""
