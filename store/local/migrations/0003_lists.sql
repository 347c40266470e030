-- Lists that the tenant's own index does not serve. Unfinished jobs are few beside those that are kept.

CREATE INDEX job_everybody ON job (created_at, id) WHERE parent_id IS NULL;
CREATE INDEX job_unfinished ON job (tenant, created_at, id) WHERE parent_id IS NULL AND finished_at IS NULL;
CREATE INDEX job_all_unfinished ON job (created_at, id) WHERE parent_id IS NULL AND finished_at IS NULL;
