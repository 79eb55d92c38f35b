"""One module per API: a typed declaration of request and response over all versions. Imported one by one, on first use."""
