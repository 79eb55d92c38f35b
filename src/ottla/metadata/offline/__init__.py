"""Work on the metadata outside of a broker: formatting, adoption, backup, migration."""
