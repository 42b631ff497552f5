/* So many calls that the preloaded library stands in front of, in a program that is no interpreter:
 * `calls mutex|semaphore|epoll|signal NUMBER`. */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/epoll.h>

int main(int count, char **arguments) {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
    struct epoll_event event;
    sem_t semaphore;
    if (count != 3)
        return 2;
    sem_init(&semaphore, 0, 0);
    int epoll = epoll_create1(0);
    for (int left = atoi(arguments[2]); left > 0; left--) {
        switch (arguments[1][0]) {
        case 'm':
            pthread_mutex_lock(&mutex);
            pthread_mutex_unlock(&mutex);
            break;
        case 's':
            sem_post(&semaphore);
            sem_wait(&semaphore);
            break;
        case 'e':
            epoll_wait(epoll, &event, 1, 0);
            break;
        default:
            pthread_cond_signal(&cond);
        }
    }
    return 0;
}
