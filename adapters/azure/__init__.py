"""What the azure-di adapter knows of Azure Document Intelligence.

    operation   where an accepted operation may be polled, and what of it is saved with the job
    status      what an operation's body says
    pace        when to ask next, how far it is, what a failed poll means
    polling     the requests about one operation, and the loop that follows it to its end
    errors      the service's own codes and words

Protocol: Azure Document Intelligence REST, 2024-11-30; 2023-07-31 has the same shape under another prefix.
"""
