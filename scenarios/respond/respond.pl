# Thousands of requests that overlap, each in a process or a thread of its own.
#
# Source: Anderson's "Get Your Thread Off of My Fork". See README.md in this folder.
use strict;
use warnings;
use Config;
use Fcntl qw(O_WRONLY O_CREAT O_APPEND);
use Getopt::Long;
use JSON::PP;
use POSIX       qw(strftime);
use Time::HiRes qw(sleep clock_gettime CLOCK_MONOTONIC);

use constant RESPONSE => 512;

sub now_ns {
    return sprintf '%.0f', clock_gettime(CLOCK_MONOTONIC) * 1e9;
}

# Of threads, which share nothing but this.
my $formatter = 0;

sub write_response {
    my ( $output, $id, $begun_ns, $is_thread ) = @_;
    my $time;
    {
        lock($formatter) if $is_thread;
        $time = strftime( '%Y-%m-%d %H:%M:%S', localtime );
    }
    my $head = sprintf '<response id="%d" begun_ns="%s" ended_ns="%s"><time>%s</time><body>',
        $id, $begun_ns, now_ns(), $time;
    my $tail = "</body></response>\n";
    my $text = $head . '.' x ( RESPONSE - length($head) - length($tail) ) . $tail;
    die "not written: $!" if ( syswrite( $output, $text ) // 0 ) != RESPONSE;
    return;
}

# The second form: requests of a client's, over sockets. Loaded only there: a thread has a copy of
# all that is.
sub listener {
    require Socket;

    # A client that has gone is an error of its request's, not the end of all.
    $SIG{PIPE} = 'IGNORE';
    socket( my $listener, Socket::PF_INET(), Socket::SOCK_STREAM(), 0 ) or die "socket: $!";
    bind( $listener, Socket::pack_sockaddr_in( 0, Socket::INADDR_LOOPBACK() ) ) or die "bind: $!";

    # The kernel makes of it the most that it has.
    listen( $listener, 2**31 - 1 ) or die "listen: $!";
    my ($port) = Socket::unpack_sockaddr_in( getsockname $listener );
    local $| = 1;
    print encode_json( { port => $port } ), "\n";
    return $listener;
}

sub hear {
    my ($request) = @_;
    my $conn = $request->{output};
    syswrite( $conn, "ready\n" ) or die "not ready: $!";
    my $line = readline($conn) // die 'the client has gone';
    $request->{begun_ns} = now_ns();
    ( $request->{id} ) = $line =~ /^respond (\d+)$/ or die "asked for $line";
    return;
}

sub respond {
    my ( $request, $wait_s, $is_thread ) = @_;
    hear($request) if $request->{is_mine};
    sleep $wait_s;
    write_response( @{$request}{qw(output id begun_ns)}, $is_thread );
    leave($request);
    return 1;
}

sub leave {
    my ($request) = @_;
    close $request->{output} if $request->{is_mine};
    return;
}

sub forks {
    my ( $count, $begin, $wait_s ) = @_;
    for my $id ( 0 .. $count - 1 ) {
        my $request = $begin->($id);
        my $pid     = fork // die "no more than $id processes can be made: $!\n";
        if ( !$pid ) {
            respond( $request, $wait_s, 0 );
            POSIX::_exit(0);
        }
        leave($request);
    }
    for ( 1 .. $count ) {
        wait;
        die 'a child failed' if $?;
    }
    return;
}

sub threads_of {
    my ( $count, $begin, $wait_s ) = @_;
    threads::shared::share( \$formatter );
    my @several;
    for my $id ( 0 .. $count - 1 ) {
        my $request = $begin->($id);
        my $one     = threads->create( { stack_size => 64 * 1024 },
            \&respond, $request, $wait_s, 1 );
        die "no more than $id threads can be made\n" if !$one;
        push @several, $one;
        leave($request);
    }
    for (@several) {
        die 'a thread failed' if !$_->join;
    }
    return;
}

my ( $mode, $workers, $wait_s, $file, $sockets ) = ( 'thread', 100, 1.0, '/dev/null', 0 );
GetOptions(
    'mode=s'    => \$mode,
    'workers=i' => \$workers,
    'wait=f'    => \$wait_s,
    'output=s'  => \$file,
    'sockets=i' => \$sockets
) or exit 2;
my $lacks = $mode eq 'thread' && !$Config{useithreads} && 'this Perl has no threads';
$lacks ||= $mode !~ /^(?:thread|fork)$/ && 'Perl has processes and threads';
if ($lacks) {
    print encode_json( { lacks => $lacks } ), "\n";
    exit 3;
}
if ( $mode eq 'thread' ) {
    require threads;
    require threads::shared;
}
sysopen( my $output, $file, O_WRONLY | O_CREAT | O_APPEND ) or die "$file: $!";
my $listener = $sockets ? listener() : undef;
my $first_s  = clock_gettime(CLOCK_MONOTONIC);

# What a request needs to be answered; `is_mine`: a connection that is closed then.
my $begin = sub {
    my ($id) = @_;
    return { output => $output, id => $id, begun_ns => now_ns() } if !$listener;
    accept( my $conn, $listener ) or die "accept: $!";
    $first_s = clock_gettime(CLOCK_MONOTONIC) if $id == 0;
    return { output => $conn, is_mine => 1 };
};
my $run = $mode eq 'fork' ? \&forks : \&threads_of;
if ( !eval { $run->( $workers, $begin, $wait_s ); 1 } ) {
    print {*STDERR} $@;
    exit 1;
}
print encode_json( { elapsed_s => clock_gettime(CLOCK_MONOTONIC) - $first_s } ), "\n";
