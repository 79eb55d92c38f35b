"""Plans of topics and partitions: what a request asks for, checked against an image and worked out."""
