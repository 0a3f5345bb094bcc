"""Reports over HTTP: for tasks that speak another protocol than the SDK's."""
