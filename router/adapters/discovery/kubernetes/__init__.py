"""Replicas that Kubernetes knows: EndpointSlices of a Service, or pods by their labels."""
