"""`POST /jobs`.

handler      the answer, and what is counted
accept       from a request to a job: the order of checks
asked        what of the head stands on every record
group        from what was asked to a group: checked as a whole, staged, made
staging      documents and children of a group on their way, in portions
children     what is asked of each child; faults are collected
options      what may be asked beside the document, from headers, query, form fields and JSON members
headers      who sent it, which trace and idempotency key it has
documents    the three kinds of body, each read to its end
upload       such a body, and what is found in it when it is one document
form_body    a form: one document, or the several of a group
form         multipart/form-data without I/O: fields, files, and where the first file lies
fanout       the member of JSON that is a group
members      an object inside a body, member by member
intake       where documents go: into drafts, or nowhere
nesting      the depth of JSON, found out while it arrives
digest       SHA-256, on the loop or in a thread
llm_input    what a job of an llm upstream must look like
fingerprint  what makes two submits the same request
"""

from gateway.http.submit.handler import submit_job

__all__ = ["submit_job"]
