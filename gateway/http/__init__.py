"""HTTP: the public job API and the admin bind.

message     request and reply, free of any framework    connection, transport   Quart and Hypercorn, made to bound
strict_h11  what is refused as HTTP                     openapi     the API described, and a page that shows it
listener    sockets and server settings, `limits`       app, public, admin      routes to handlers, and their frame
body        a body as it arrives, and its bounds        request_head, trace_context, prefer   what a head says
tenancy     who is asking; on the admin bind            submit      POST /jobs: three bodies, one submission
            `admin_guard`                               jobs, listing, waiting  watch routes
view        the job object; `outlook`: what lies        admin_view, scrape      the figures of the admin bind
            ahead of it                                 problem_map, retry_after   exceptions to problem documents
"""
