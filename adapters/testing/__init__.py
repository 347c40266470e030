"""What tests of adapters, and of whatever uses adapters, are made of.

    stub      an upstream on a raw socket that records each request byte for byte and plays scripts
    azure_stub   Azure Document Intelligence, played on such a socket
    llm_stub  a service with the OpenAI routes, the same way
    scripts   what it can play: answers good and bad
    doubles   a document in memory, a report that remembers
    contract  what every adapter must do, as functions that take a maker

Ships with the package: another adapter's test file is a maker and a loop over `contract.CHECKS`.
"""
