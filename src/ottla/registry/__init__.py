"""Schema registry with Confluent's REST API, whose state is the topic `_schemas`.

records.py    keys and values of the topic, byte for byte as Confluent's registry writes them
state.py      the state that replaying these records gives
subjects.py   names of subjects and their contexts
refusals.py   errors of requests, with Confluent's codes and texts
decisions.py  operations: state and request -> records and result
contracts.py  metadata and rule sets of schemas
checks.py     what takes time: parsing schemas, and their compatibility
rest.py       requests and responses; routes.py the table of them
election.py   which of several registries writes; leadership.py, forwarding.py
login.py, security.py  who may connect
store.py      reader and writer of the topic
service.py    a registry that serves
"""
