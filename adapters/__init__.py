"""How to call one kind of upstream.

    base        the protocol: call in, outcome or error out
    sync_http   post a document, get its result             classify     the same for classifiers
    azure_di    submit, follow the operation, get its result    azure    what it knows of the service
    llm         a request of the OpenAI routes              usage       the tokens that an answer names
    post        what they share: one POST to its outcome    forms        in which form a document goes out
    outcome     from an answer to an outcome or an error    api_key      the gateway's key, shown nowhere
    http        the one seam to upstream sockets            http_connection   one connection
    http_answer, decoding   answers as they arrive          media_type  what a Content-Type says
    testing     the contract suite, scripted stub upstreams

Imports nothing of `gateway` or `store`; knows HTTP and documents, never jobs.
"""
