//! Functions of clients, of servers and of their event loops: data alone. Patterns are those of `pattern.rs`.

/// Clients of other services: below them, a socket is that of a service. Elsewhere, it may be that of a client of this program
/// that sends no request. Functions of libmysqlclient by their names: those of the server begin like them.
pub(crate) const CLIENTS: &[&str] = &[
    "curl_*",
    "PQexec*",
    "PQgetResult",
    "PQconnect*",
    "PQprepare",
    "PQreset*",
    "mysql_query",
    "mysql_real_query*",
    "mysql_real_connect*",
    "mysql_read_query_result*",
    "mysql_send_query*",
    "mysql_store_result*",
    "mysql_fetch_row*",
    "mysql_next_result*",
    "mysql_ping*",
    "mysql_stmt_execute*",
    "mysql_stmt_fetch*",
    "mysql_stmt_prepare*",
    "redisCommand*",
    "mongoc_*",
    // .NET.
    "System.Net.Http.*",
    "System.Net.HttpWebRequest.*",
    "System.Net.WebClient.*",
    "System.Net.FtpWebRequest.*",
    "System.Net.Mail.SmtpClient.*",
    "System.Net.Sockets.Socket.Connect*",
    "System.Net.Sockets.TcpClient.Connect*",
    "System.Net.Dns.*",
    "System.Data.*",
    "Microsoft.Data.*",
    "Npgsql.*",
    "MySqlConnector.*",
    "MySql.Data.*",
    "StackExchange.Redis.*",
    "MongoDB.Driver.*",
    "RabbitMQ.Client.*",
    "Grpc.Net.Client.*",
    // Apache: modules/proxy.
    "proxy_run_scheme_handler",
    // Java, as JVMs and agents spell its methods in perf maps.
    "*sun.net.www.protocol.http.HttpURLConnection.*",
    "*org.postgresql.core.*",
    "*com.mysql.cj.*",
    "*org.apache.http.impl.execchain.*",
    "*okhttp3.internal.http.*",
    // PHP.
    "_php_stream_*",
    "mysqlnd_*",
];

/// Readers of responses in processes with one thread, which have no idle connections: `http.client` of Python reads sockets
/// through a buffer. A server with a thread for each connection can do this as well.
pub(crate) const SYNCHRONOUS_CLIENTS: &[&str] = &["_io__Buffered_read*"];

/// Functions in which the threads of a server wait for connections and requests.
pub(crate) const SERVERS: &[&str] = &[
    "inet_csk_accept",
    "unix_accept",
    "accept",
    "accept4",
    "do_epoll_wait",
    "ep_poll",
    "epoll_wait",
    "epoll_pwait*",
    "System.Net.Sockets.SocketAsyncEngine.*",
];

/// Functions that run the callbacks of an event loop.
pub(crate) const EVENT_LOOPS: &[&str] = &[
    "uv_run",
    "aeMain",
    "aeProcessEvents",
    "event_base_loop",
    "ev_run",
    "g_main_loop_run",
    "g_main_context_iteration",
    "ngx_process_events_and_timers",
    "tokio::runtime::*::run",
];
