-- Give tables and columns the names of the glossary.

ALTER TABLE lines RENAME TO request_groups;
ALTER TABLE request_groups RENAME COLUMN share TO fair_share_group;
ALTER TABLE families RENAME TO profiles;
ALTER TABLE cards RENAME TO device_settings;
ALTER TABLE jobs RENAME COLUMN line TO request_group;
ALTER TABLE jobs RENAME COLUMN family TO profile;
ALTER TABLE trials RENAME COLUMN told TO reported;
