"""Web console (`ottla console`, extra `console`): topics, messages, groups, transactions, users and ACLs in a browser.

Pages are rendered on the server; every view has a URL and works without scripts. The console reaches a cluster through the
admin client, consumer and producer, with the credentials of its configuration: it can do nothing that these may not do.
"""
