"""Words about ended jobs, brought to the `callback_url` that a submit named (Standard Webhooks).

    callback    what such a URL may look like          letter     what is told, and its signature
    addresses   where its host is, and may be          schedule   when it is tried again
    lanes       which letter is sent next              postman    one attempt
    sender      the service: takes, sends, records

A delivery is an entry in the store, made in the step that ends its job; no job waits for one.
"""
