"""Transactions, quotas, users, ACLs and log directories."""

import re

from ottla import Admin, NewTopic, Producer
from ottla.client.admin.acls import AclPermissionType
from tests.console import Broker
from tests.console.browser import Browse, Browser


def test_an_open_transaction_is_shown_and_aborted(browser: Browser, admin: Admin, broker: Broker) -> None:
    admin.create_topics([NewTopic("paid", 1, 1)]).check()
    producer = Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="payments")
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("paid", "1")
    producer.flush()
    text = browser.get("/transactions", q="PAY")
    assert ">payments</a>" in text
    assert "Ongoing" in text
    text = browser.get("/transaction", id="payments")
    assert "paid-0" in text
    assert "The topic has no committed messages." in browser.get("/topics/paid/messages", committed="1")
    text = browser.get("/transaction/abort", id="payments")
    assert "forceTerminateTransaction --transactionalId payments" in text
    assert "was aborted" in browser.post("/transaction/abort?id=payments")
    assert admin.describe_transactions(["payments"])["payments"].state in ("CompleteAbort", "Empty")
    assert "Abort the transaction" not in browser.get("/transaction", id="payments")
    producer.close(0)


def test_a_quota_is_set_and_removed(browser: Browser, admin: Admin) -> None:
    assert "There are no quotas" in browser.get("/quotas")
    arguments = "name=producer_byte_rate&user=ada&client-id=(default)"
    text = browser.get(f"/quotas/change?{arguments}&value=1024")
    words = "--entity-type users --entity-name ada --entity-type clients --entity-default"
    assert f"{words} --add-config producer_byte_rate=1024" in text
    assert "was set" in browser.post(f"/quotas/change?{arguments}&value=1024")
    entity = frozenset({("user", "ada"), ("client-id", None)})
    assert admin.describe_client_quotas()[entity] == {"producer_byte_rate": 1024}
    assert "1024" in browser.get("/quotas")
    assert "--delete-config producer_byte_rate" in browser.get(f"/quotas/change?{arguments}")
    browser.post(f"/quotas/change?{arguments}")
    assert entity not in admin.describe_client_quotas()
    assert "number of at least 0" in browser.get(f"/quotas/change?{arguments}&value=-1", 400)
    assert "A quota is that of" in browser.get("/quotas/change?name=producer_byte_rate&ip=1.2.3.4&user=a", 400)


def test_a_user_gets_a_password_and_loses_it(browser: Browser, admin: Admin) -> None:
    browser.get("/users")
    fields = {"user": "ada", "password": "secret horse", "mechanism": "SCRAM-SHA-512", "iterations": "4096"}
    text = browser.post("/users", **fields)
    assert "The password of ada was set" in text
    assert "secret horse" not in text
    assert admin.describe_user_scram_credentials(["ada"])["ada"][0].iterations == 4096
    assert "4096" in browser.post("/users", 400, **{**fields, "iterations": "1"})
    assert "mechanism is one of" in browser.post("/users", 400, **{**fields, "mechanism": "PLAIN"})
    text = browser.get("/users/delete", user="ada", mechanism="SCRAM-SHA-512")
    assert "--entity-name ada --delete-config SCRAM-SHA-512" in text
    assert "was deleted" in browser.post("/users/delete?user=ada&mechanism=SCRAM-SHA-512")
    assert "No user has" in browser.get("/users")


def test_an_acl_is_added_and_removed(browser: Browser, admin: Admin) -> None:
    browser.get("/acls")
    fields = {
        "principal": "User:ada",
        "permission": "DENY",
        "operation": "READ",
        "resource_type": "TOPIC",
        "name": "secret-",
        "pattern_type": "PREFIXED",
        "host": "",
    }
    text = browser.post("/acls", **fields)
    assert "The ACL was added" in text
    (binding,) = admin.describe_acls()
    assert binding.pattern.name == "secret-"
    assert binding.entry.permission_type == AclPermissionType.DENY
    url = re.search(r'href="/c/test(/acls/delete[^"]*)"', text)
    assert url
    text = browser.get(url[1])
    words = "acls --bootstrap-server \\S+ --remove --topic secret- --resource-pattern-type prefixed"
    assert re.search(f"{words} --deny-principal User:ada --deny-host '\\*' --operation Read", text)
    assert "was removed" in browser.post(url[1])
    assert not admin.describe_acls()
    assert "no such ACL" in browser.post(url[1], 404)
    assert "TYPE:NAME" in browser.post("/acls", 400, **{**fields, "principal": "ada"})
    assert "is not one of" in browser.post("/acls", 400, **{**fields, "operation": "PEEK"})


def test_log_directories_have_their_sizes(browser: Browser, admin: Admin, flights: None) -> None:
    text = browser.get("/log-dirs")
    directories = admin.describe_log_dirs([admin.describe_cluster().nodes[0].id])
    assert all(path in text for its in directories.successes.values() for path in its)
    assert "flights-0" in text


def test_a_read_only_console_shows_no_link_to_a_change(browse: Browse, flights: None) -> None:
    browser = browse(read_only=True)
    pages = ("", "/topics", "/topics/flights", "/topics/flights/configs", "/topics/flights/messages", "/groups")
    for path in (*pages, "/transactions", "/quotas", "/users", "/acls", "/log-dirs"):
        text = browser.get(path)
        assert 'method="post"' not in text, path
        changes = r"/(delete|grow|empty|produce|change|create-topic|reset|abort|delete-offsets)\b"
        assert not re.search(rf'(href|action)="[^"]*{changes}', text), path
