"""Makes the dashboards in ../dashboards: `python -m deploy.grafana.generate`."""
