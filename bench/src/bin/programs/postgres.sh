chmod 777 .
# Debian has the server's programs in a directory of the version.
ln -sf $(ls -d /usr/lib/postgresql/*/bin | tail -1) pg
runuser -u postgres -- pg/initdb -D data >/dev/null &&
echo "unix_socket_directories = '$PWD'
port = 7398
listen_addresses = ''
fsync = off" >> data/postgresql.conf &&
runuser -u postgres -- pg/pg_ctl -s -w -D data -l log start &&
pgbench -h $PWD -p 7398 -U postgres -q -i -s 5 postgres 2>/dev/null &&
runuser -u postgres -- pg/pg_ctl -s -w -D data stop
