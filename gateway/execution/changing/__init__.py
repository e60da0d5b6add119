"""UPDATE, DELETE and MERGE: files that hold rows to be changed are written anew. START HERE: table_changer.py."""
