"""Where replicas come from: a file, names in the DNS, Kubernetes."""
